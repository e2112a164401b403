from django.db import migrations

ADD = """
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON keys_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_keep_trail()
"""
DROP = "DROP TRIGGER append_only_truncate ON keys_auditevent"


class Migration(migrations.Migration):
    dependencies = [("keys", "0003_money_actions")]

    operations = [migrations.RunSQL(ADD, DROP)]
