"""Fixtures that every package's tests share."""

pytest_plugins = ["latent_core.testing.postgres"]
