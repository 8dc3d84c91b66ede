"""Retrieval quality: metrics of rankings, intervals, gates, judged sets."""
