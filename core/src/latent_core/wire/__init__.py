"""Shapes of the HTTP API (docs/api.md), one module per resource, for the gateway and the client alike.

Requests forbid unknown fields, answers ignore them: a client reads what a newer gateway adds.
"""
