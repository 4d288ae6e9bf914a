"""What is judged, and how: cases, metrics, judgements."""
