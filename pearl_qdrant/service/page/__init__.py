"""The page at `/`: static files, and what they ask beside the API: settings, types and maps of collections."""
