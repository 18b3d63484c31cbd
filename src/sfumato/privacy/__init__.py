"""Privacy: exact losses, mechanisms with their loss maps, the sampler, the accountant."""
