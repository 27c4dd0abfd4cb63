"""Our passes as the last of Inductor's: writes are put back into the functional graph that it was given."""
