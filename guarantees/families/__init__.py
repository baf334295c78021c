"""Claims that are known in closed form or come from accountants."""
