"""The relay's core: bytes in, bytes out. No sockets, no tasks, no clock, no Django."""
