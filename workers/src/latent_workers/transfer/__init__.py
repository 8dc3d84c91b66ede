"""What the jobs of exports and imports share."""
