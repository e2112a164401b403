"""What was said in an exchange, masked, and how it is shown."""
