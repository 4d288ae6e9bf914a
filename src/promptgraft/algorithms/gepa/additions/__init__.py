"""What a search may do beyond the published algorithm, each on its own."""
