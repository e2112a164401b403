from pathlib import Path

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

_SQL = Path(__file__).parent / "sql"


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0006_hold_twice'),
    ]

    operations = [
        migrations.AlterField(
            model_name='message',
            name='category',
            field=models.CharField(choices=[('estimate', 'Estimate'), ('shortfall', 'Shortfall'), ('limit', 'Limit'), ('correction', 'Correction')], max_length=20),
        ),
        migrations.CreateModel(
            name='StaffNotice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('estimate_fails', 'Estimate Fails'), ('estimate_given_up', 'Estimate Given Up'), ('late_settlement', 'Late Settlement'), ('never_settled', 'Never Settled')], max_length=32)),
                ('tenant_id', models.BigIntegerField()),
                ('exchange_id', models.UUIDField()),
                ('words', models.CharField(max_length=300)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'indexes': [models.Index(fields=['-at'], name='notice_by_time')],
                'constraints': [models.UniqueConstraint(fields=('kind', 'exchange_id'), name='one_notice_a_kind')],
            },
        ),
        migrations.CreateModel(
            name='LateSettlement',
            fields=[
                ('exchange_id', models.UUIDField(primary_key=True, serialize=False)),
                ('tenant_id', models.BigIntegerField()),
                ('settlement', models.JSONField()),
                ('received_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('corrected_at', models.DateTimeField(null=True)),
                ('moved_nanos', models.BigIntegerField(null=True)),
                ('adjustment', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.adjustment')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('corrected_at__isnull', True)), fields=['received_at'], name='late_settlement_due')],
            },
        ),
        migrations.RunSQL(
            (_SQL / "0007_recovery.sql").read_text(), (_SQL / "0007_recovery_down.sql").read_text()
        ),
    ]
