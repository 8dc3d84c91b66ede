"""Transfer of containers (export and import), and the gates of a refresh."""
