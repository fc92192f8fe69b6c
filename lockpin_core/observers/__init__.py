"""What watches calls beside the decision about their cost: agents that go round in a circle, tasks that change."""
