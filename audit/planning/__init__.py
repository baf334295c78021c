"""What an audit can be expected to show, before it is run."""
