"""What is asked of a population: frozen agreements of clients and servers."""
