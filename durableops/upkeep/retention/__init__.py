"""The cleaner: removes what policy and holders allow, in small steps that give way to live work, and says what."""
