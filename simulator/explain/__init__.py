"""Topics of the field, each with its formula, an example worked with the user's model and accelerator, what was
published beside what is predicted, and what it leaves out."""
