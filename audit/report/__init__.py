"""Reports: pages, plots, tables and other formats, made from records only."""
