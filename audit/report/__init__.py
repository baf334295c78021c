"""What people see: pages, plots, tables, other formats. Reads records only."""
