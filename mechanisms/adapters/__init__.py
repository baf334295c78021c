"""Training steps of other libraries and languages as mechanisms; each library is imported only when its step runs."""
