"""Configuration files of agents: where they are, and how one entry is added to them and taken out again."""
