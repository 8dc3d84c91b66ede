"""Shared parts of export and import jobs."""
