"""An interrupted run goes on where it stopped: what decides an audit, and the counts saved so far."""
