"""What an attacker gains from a release: success on members minus success on controls."""
