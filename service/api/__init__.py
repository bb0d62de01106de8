"""HTTP: the application, its routes, and who may call them."""
