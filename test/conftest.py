"""What every test shares: hypothesis without deadlines, because the machines that run this differ."""

from hypothesis import HealthCheck, settings

settings.register_profile("warploom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("warploom")
