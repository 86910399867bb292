"""Features -> forms; the raw side."""

from veil.privatize.profile import Profile, hardened, paper
from veil.privatize.public import publish
from veil.privatize.release import Release, privatize, pseudonym
from veil.privatize.subspace import DecoyRule, Lifted, lift

__all__ = ["DecoyRule", "Lifted", "Profile", "Release", "hardened", "lift", "paper", "privatize", "pseudonym", "publish"]
