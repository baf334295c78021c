"""Suites: audits named in TOML files, run under one risk, resumable."""
