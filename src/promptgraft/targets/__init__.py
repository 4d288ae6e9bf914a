"""What is improved: candidates, how they are tried, and how they are kept."""
