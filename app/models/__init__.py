"""What a person sees of models: the list with its fits, loading, the hub, downloads, and the menu that changes the model of a chat."""
