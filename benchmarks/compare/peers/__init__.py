"""What runs inside a peer's own environment. Nothing here imports our packages, and we import no peer."""
