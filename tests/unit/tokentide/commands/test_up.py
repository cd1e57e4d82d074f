from tokentide.commands.up import LogTail


def test_only_whole_new_lines_of_a_log_are_told(tmp_path):
    path = tmp_path / "worker.log"
    tail = LogTail("worker-0", path)

    assert tail.new_lines() == []
    path.write_text("one\ntw")
    assert tail.new_lines() == ["one"]
    path.write_text("one\ntwo\n")
    assert tail.new_lines() == ["two"]
    assert tail.new_lines() == []
