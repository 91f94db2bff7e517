"""Mining: finds hard negatives, phrases that are spelled almost alike and mean something else."""
