"""Questions to a population: frozen agreements of clients and servers."""
