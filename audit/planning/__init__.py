"""Planning: what an audit can be expected to show, before it runs."""
