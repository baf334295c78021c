"""Rounds whose noisy sum is divided: EASGM, ASGM, FEASGM, exactly and in bounds."""
