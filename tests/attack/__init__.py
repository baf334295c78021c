"""An attack on every curve that guarantees can make: draws over whole ranges, properties, oracles."""
