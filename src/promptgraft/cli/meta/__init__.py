"""``promptgraft meta``: the questions that the reflection model is asked."""
