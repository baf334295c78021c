"""Searches, special functions and tables: nothing about privacy."""
