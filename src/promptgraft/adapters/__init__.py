"""Who answers prompts."""
