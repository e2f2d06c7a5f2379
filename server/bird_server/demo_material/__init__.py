"""What the demonstration is made of: tables, tasks, and a scripted policy. The door is `bird_server.demo_world`."""
