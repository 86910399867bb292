"""The laboratory of veil: public protocols, training of what attacks learn, the planted city."""
