"""The Django project and the relay. `billing` and `keys` know nothing of it."""
