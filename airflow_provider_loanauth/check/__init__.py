"""Checking of everything between this machine and a working login."""
