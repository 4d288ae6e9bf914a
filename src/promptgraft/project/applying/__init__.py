"""How the winner of a run gets where it is used: into the store, or back into its source."""
