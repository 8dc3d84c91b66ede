"""Conversations: their stored form, and the transcripts and exports from which it is made."""
