"""Read Parquet files and Arrow IPC files, through pyarrow (the extra `arrow`)."""
