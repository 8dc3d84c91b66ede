"""Retrieval quality: figures of rankings, intervals, gates, judged sets. Pure: who searches is handed in."""
